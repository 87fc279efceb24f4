"""What runs inside fairseq-generate.  Without fairseq, `tasks` and `ensemble` cannot be imported."""
