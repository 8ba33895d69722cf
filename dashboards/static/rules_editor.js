// Completion and accessible name of the rules editor. Asks before an edit is lost, and keeps it over a lost connection.
// Knows no schema: the server says what may be written at the cursor.
import * as CM from "nicegui-codemirror";

async function source(context) {
  const before = context.state.doc.sliceString(0, context.pos);
  if (!context.explicit && !/[\w{[,:-] ?$/.test(before)) return null;
  const answer = await fetch(new URL("../rules/complete", import.meta.url), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ before }),
  });
  if (!answer.ok || context.aborted) return null;
  const { word, options } = await answer.json();
  if (!options.length) return null;
  return {
    from: context.pos - word.length,
    options: options.map(({ label, insert, detail, kind }) => ({ label, apply: insert, detail, type: kind })),
    validFor: /^[\w.:/@-]*$/,
  };
}

const MOST_BYTES = 900_000; // per change: the page's channel drops longer ones, and the server would save the text without them

function isTaken(transaction) {
  let bytes = 0;
  transaction.changes.iterChanges((fromA, toA, fromB, toB, inserted) => {
    bytes += new TextEncoder().encode(JSON.stringify(inserted.toJSON())).length;
  });
  if (bytes <= MOST_BYTES) return true;
  const message = `Nothing was pasted: the editor takes at most ${MOST_BYTES / 1000} kB at once.`;
  Quasar.Notify.create({ message, type: "negative", timeout: 10000, position: "top" });
  return false;
}

const KEPT = "breakeven.edited-rules";

// After a lost connection the page was loaded again: the gateway was restarted, or the session had ended.
function restore(component, opened) {
  const kept = JSON.parse(sessionStorage.getItem(KEPT));
  sessionStorage.removeItem(KEPT);
  const isText = component.$el.offsetParent !== null; // the form has its own copy of the rules
  if (!kept || !isText || kept.edited === opened) return;
  component.editor.dispatch({ changes: { from: 0, to: opened.length, insert: kept.edited } });
  const overtaken = kept.opened === opened ? "" : " Other rules became active meanwhile: compare before you save.";
  const message = `The connection was lost; your edit has been restored.${overtaken}`;
  Quasar.Notify.create({ message, timeout: 10000, position: "top" });
}

// Follows the theme of the page, whether from the cookie, the system, or the button, which may be pressed later.
function follow(component) {
  const match = () => component.setTheme(document.body.classList.contains("body--dark") ? "githubDark" : "githubLight");
  new MutationObserver(match).observe(document.body, { attributeFilter: ["class"] });
  match();
}

// `component` is NiceGUI's editor element.
export async function attach(component) {
  if (!component.editor) await component.editorPromise;
  follow(component);
  const extension = CM.EditorState.languageData.of(() => [{ autocomplete: source }]);
  const named = CM.EditorView.contentAttributes.of({ "aria-label": "Rules as YAML", tabindex: "0" });
  component.editor.dispatch({ effects: CM.StateEffect.appendConfig.of([extension, named, CM.EditorState.changeFilter.of(isTaken)]) });
  const opened = component.editor.state.doc;
  window.onbeforeunload = (event) => {
    // Browsers do not ask users who never touched the page, and log an error if told to.
    const text = component.editor.state.doc.toString();
    if (window.socket?.disconnected && text !== opened.toString()) {
      sessionStorage.setItem(KEPT, JSON.stringify({ opened: opened.toString(), edited: text }));
      return;
    }
    const touched = navigator.userActivation?.hasBeenActive ?? true;
    if (touched && !component.editor.state.doc.eq(opened)) event.preventDefault();
  };
  restore(component, opened.toString());
  component.$el.dataset.completes = "yes";
}
