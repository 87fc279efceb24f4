"""Text whose placeholders and inline tags survive translation, whatever the model writes."""

from knn_seq.protect.attention import Attention
from knn_seq.protect.content import Content, Role, Tag, join
from knn_seq.protect.patterns import Finder
from knn_seq.protect.protector import Line, Protected, Protector, text_of

__all__ = ["Attention", "Content", "Finder", "Line", "Protected", "Protector", "Role", "Tag", "join", "text_of"]
