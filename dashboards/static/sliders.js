// What has the focus of a slider says its name and its value in words. Quasar gives both to the frame around it, and of a
// logarithmic slider the exponent. Knows nothing of what a slider means: the words stand above it.
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
