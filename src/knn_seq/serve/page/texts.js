// What the page says, in each of its languages.

export const TEXTS = {
  en: {
    skip: "Skip to the content", sections: "Sections", translate: "Translate", memory: "Memory", glossary: "Glossary",
    documents: "Documents", store: "Datastore", language: "Language of this page", theme: "Light or dark", key: "API key",
    typeHere: "Type or paste text", byModel: "the model", byNeighbours: "neighbours", translation: "Translation",
    correctedText: "Corrected translation", save: "Save to the memory", cancel: "Cancel", correct: "Correct", copy: "Copy",
    learned: "✓ learned: from the memory", whatDecided: "What decided this word", baseAlone: "The model alone",
    alternatives: "Alternatives", settings: "Settings", combiner: "Combiner", retriever: "Retriever",
    temperature: "Temperature", weight: "Weight", reset: "As the datastore has them", search: "Search",
    searchMemory: "Search the memory", newPair: "New pair", import: "Import …", export: "Export", undo: "Undo",
    dropMemory: "Drop a TMX, TSV, XLIFF or PO file here to import it", sourceText: "Source", targetText: "Target",
    corpus: "Corpus", date: "Date", actions: "Actions", add: "Add", dropDocument: "Drop a file here to translate it, or choose one",
    edit: "Edit", delete: "Delete", deleted: "Deleted.", saved: "Saved. It is used from the next translation on.",
    clickWord: "Choose a word of the translation to see what decided it.", noNeighbours: "No neighbours: the model alone decided.",
    modelSaid: "The model alone would write", probability: "probability", distance: "distance", shown: "shown", of: "of",
    copied: "Copied.", enterKey: "API key of this server (kept in this tab only)", importing: "Importing", translating: "Translating",
    done: "Done", failed: "Failed", download: "Download", segments: "Segments", words: "Words", exact_matches: "Exact matches",
    placeholders_repaired: "Placeholders repaired", terms_applied: "Terms applied", seconds: "Seconds", unreachable: "The server does not answer.",
    neighboursShare: "neighbours", own: "the datastore's", by_neighbours: "By neighbours", more: "Show more", format: "Format", nothing: "Nothing found.",
  },
  de: {
    skip: "Zum Inhalt", sections: "Bereiche", translate: "Übersetzen", memory: "Speicher", glossary: "Glossar",
    documents: "Dokumente", store: "Datenspeicher", language: "Sprache dieser Seite", theme: "Hell oder dunkel", key: "API-Schlüssel",
    typeHere: "Text eingeben oder einfügen", byModel: "das Modell", byNeighbours: "Nachbarn", translation: "Übersetzung",
    correctedText: "Berichtigte Übersetzung", save: "In den Speicher", cancel: "Abbrechen", correct: "Berichtigen", copy: "Kopieren",
    learned: "✓ gelernt: aus dem Speicher", whatDecided: "Was dieses Wort entschied", baseAlone: "Das Modell allein",
    alternatives: "Andere Übersetzungen", settings: "Einstellungen", combiner: "Kombinierer", retriever: "Suche",
    temperature: "Temperatur", weight: "Gewicht", reset: "Wie im Datenspeicher", search: "Suchen",
    searchMemory: "Speicher durchsuchen", newPair: "Neues Paar", import: "Einlesen …", export: "Ausgeben", undo: "Rückgängig",
    dropMemory: "TMX-, TSV-, XLIFF- oder PO-Datei hier ablegen, um sie einzulesen", sourceText: "Ausgangstext", targetText: "Übersetzung",
    corpus: "Korpus", date: "Datum", actions: "Aktionen", add: "Hinzufügen", dropDocument: "Datei hier ablegen, um sie zu übersetzen, oder auswählen",
    edit: "Bearbeiten", delete: "Löschen", deleted: "Gelöscht.", saved: "Gespeichert. Ab der nächsten Übersetzung wird es benutzt.",
    clickWord: "Wählen Sie ein Wort der Übersetzung, um zu sehen, was es entschied.", noNeighbours: "Keine Nachbarn: Das Modell entschied allein.",
    modelSaid: "Das Modell allein schriebe", probability: "Wahrscheinlichkeit", distance: "Abstand", shown: "angezeigt", of: "von",
    copied: "Kopiert.", enterKey: "API-Schlüssel dieses Servers (bleibt nur in diesem Tab)", importing: "Wird eingelesen", translating: "Wird übersetzt",
    done: "Fertig", failed: "Fehlgeschlagen", download: "Herunterladen", segments: "Segmente", words: "Wörter", exact_matches: "Genaue Treffer",
    placeholders_repaired: "Platzhalter repariert", terms_applied: "Begriffe angewandt", seconds: "Sekunden", unreachable: "Der Server antwortet nicht.",
    neighboursShare: "Nachbarn", own: "wie im Datenspeicher", by_neighbours: "Durch Nachbarn", more: "Mehr anzeigen", format: "Format", nothing: "Nichts gefunden.",
  },
  pt: {
    skip: "Ir para o conteúdo", sections: "Seções", translate: "Traduzir", memory: "Memória", glossary: "Glossário",
    documents: "Documentos", store: "Repositório", language: "Idioma desta página", theme: "Claro ou escuro", key: "Chave da API",
    typeHere: "Digite ou cole o texto", byModel: "o modelo", byNeighbours: "vizinhos", translation: "Tradução",
    correctedText: "Tradução corrigida", save: "Salvar na memória", cancel: "Cancelar", correct: "Corrigir", copy: "Copiar",
    learned: "✓ aprendido: vem da memória", whatDecided: "O que decidiu esta palavra", baseAlone: "Só o modelo",
    alternatives: "Alternativas", settings: "Configurações", combiner: "Combinador", retriever: "Busca",
    temperature: "Temperatura", weight: "Peso", reset: "Como no repositório", search: "Buscar",
    searchMemory: "Buscar na memória", newPair: "Novo par", import: "Importar …", export: "Exportar", undo: "Desfazer",
    dropMemory: "Solte aqui um arquivo TMX, TSV, XLIFF ou PO para importá-lo", sourceText: "Original", targetText: "Tradução",
    corpus: "Corpus", date: "Data", actions: "Ações", add: "Adicionar", dropDocument: "Solte aqui um arquivo para traduzi-lo, ou escolha um",
    edit: "Editar", delete: "Excluir", deleted: "Excluído.", saved: "Salvo. Será usado a partir da próxima tradução.",
    clickWord: "Escolha uma palavra da tradução para ver o que a decidiu.", noNeighbours: "Sem vizinhos: o modelo decidiu sozinho.",
    modelSaid: "O modelo sozinho escreveria", probability: "probabilidade", distance: "distância", shown: "mostrados", of: "de",
    copied: "Copiado.", enterKey: "Chave da API deste servidor (fica só nesta aba)", importing: "Importando", translating: "Traduzindo",
    done: "Pronto", failed: "Falhou", download: "Baixar", segments: "Segmentos", words: "Palavras", exact_matches: "Correspondências exatas",
    placeholders_repaired: "Marcadores reparados", terms_applied: "Termos aplicados", seconds: "Segundos", unreachable: "O servidor não responde.",
    neighboursShare: "vizinhos", own: "do repositório", by_neighbours: "Por vizinhos", more: "Mostrar mais", format: "Formato", nothing: "Nada encontrado.",
  },
};

let current = TEXTS.en;

export const text = (name) => current[name] ?? TEXTS.en[name] ?? name;

export function useLanguage(code) {
  current = TEXTS[code] ?? TEXTS.en;
  document.documentElement.lang = code in TEXTS ? code : "en";
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = text(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", text(element.dataset.label));
  for (const element of document.querySelectorAll("[data-placeholder]")) element.placeholder = text(element.dataset.placeholder);
}

export const languageName = (code) => {
  try { return new Intl.DisplayNames([document.documentElement.lang], { type: "language" }).of(code); } catch { return code; }
};
