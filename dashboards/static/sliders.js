// Gives a slider's handle, which takes the focus, its name and its value in words. Quasar sets both on the frame around it,
// and for a logarithmic slider the exponent. Knows nothing of what a slider means: the words come from the label above it.
const SAID = ["role", "aria-label", "aria-valuemin", "aria-valuemax", "aria-valuenow", "aria-orientation"];

function say(handle, frame, words) {
  for (const name of SAID) {
    if (!frame.hasAttribute(name)) continue;
    handle.setAttribute(name, frame.getAttribute(name));
    frame.removeAttribute(name);
  }
  handle.setAttribute("aria-valuetext", words.textContent);
}

export function name() {
  for (const lever of document.querySelectorAll(".be-lever")) {
    const frame = lever.querySelector(".q-slider");
    const handle = frame.querySelector("[tabindex]");
    const words = lever.querySelector(".be-lever-value");
    const follow = new MutationObserver(() => say(handle, frame, words));
    follow.observe(frame, { attributeFilter: ["aria-valuenow"] });
    follow.observe(words, { childList: true, characterData: true, subtree: true });
    say(handle, frame, words);
  }
}
