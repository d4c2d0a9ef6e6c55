// The slider shows its number while it moves, and its version once it is released. Without this, the button does it.
for (const slider of document.querySelectorAll("[data-submit]")) {
  const shown = slider.form.querySelector("output");
  slider.addEventListener("input", () => { shown.textContent = Number(slider.value).toLocaleString("en"); });
  slider.addEventListener("change", () => slider.form.submit());
}
