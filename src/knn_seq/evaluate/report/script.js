// Shows what spoke for a word, beside the word: on pointing, on focus and on a tap.
(() => {
  let word = null, card = null, timer = 0;
  const hide = () => {
    if (card) { card.hidden = true; word.classList.remove("open"); }
    word = card = null;
  };
  const show = (next) => {
    clearTimeout(timer);
    if (next === word) return;
    hide();
    word = next;
    card = document.getElementById(word.getAttribute("aria-describedby"));
    card.hidden = false;
    word.classList.add("open");
    const box = word.getClientRects()[0], page = document.documentElement;
    const left = Math.max(8, Math.min(box.left, page.clientWidth - card.offsetWidth - 8));
    const below = box.bottom + 6, above = box.top - card.offsetHeight - 6;
    const fits = below + card.offsetHeight <= page.clientHeight || above < 0;
    card.style.left = `${left + scrollX}px`;
    card.style.top = `${(fits ? below : above) + scrollY}px`;
  };
  const look = (event) => {
    const inside = event.target.closest?.(".marked .word, .card");
    if (inside?.matches(".word")) show(inside);
    else if (inside) clearTimeout(timer);
    else { clearTimeout(timer); timer = setTimeout(hide, 200); }
  };
  for (const kind of ["pointerover", "pointerdown", "focusin"]) document.addEventListener(kind, look);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
