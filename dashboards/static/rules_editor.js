// The rules editor's completion, name and warning before an edit is lost. Knows no schema: the server says what may be
// written where the cursor is.
import * as CM from "nicegui-codemirror";

async function source(context) {
  const before = context.state.doc.sliceString(0, context.pos);
  if (!context.explicit && !/[\w{[,:-] ?$/.test(before)) return null;
  const answer = await fetch("/ui/rules/complete", {
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

// `component` is NiceGUI's editor element.
export async function attach(component) {
  if (!component.editor) await component.editorPromise;
  const extension = CM.EditorState.languageData.of(() => [{ autocomplete: source }]);
  const named = CM.EditorView.contentAttributes.of({ "aria-label": "Rules as YAML" });
  component.editor.dispatch({ effects: CM.StateEffect.appendConfig.of([extension, named]) });
  const opened = component.editor.state.doc;
  window.onbeforeunload = (event) => {
    // A browser asks nobody who never touched the page, and logs an error where it should.
    const touched = navigator.userActivation?.hasBeenActive ?? true;
    if (touched && !component.editor.state.doc.eq(opened)) event.preventDefault();
  };
  component.$el.dataset.completes = "yes";
}
