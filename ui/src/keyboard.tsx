// Shortcuts. Those of one key can be switched off, and none works while a text is typed.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { shortcuts, tourOffer } from "./preferences.ts";
import { goTo, hrefTo } from "./router.ts";
import { startTour } from "./tour.tsx";
import { reloadPage } from "./use-read.ts";

export const helpIsOpen = signal(false);

const PLACES: Readonly<Record<string, readonly [string, string]>> = {
  o: ["", "Overview"],
  s: ["search", "Search"],
  m: ["messages", "Messages"],
  d: ["dead-letters", "Dead letters"],
  g: ["sagas", "Sagas"],
  f: ["flows", "Flows"],
  c: ["consumers", "Consumers"],
  a: ["audit", "Audit"],
  t: ["settings", "Settings"],
  p: ["permissions", "Your permissions"],
};

const SEQUENCE_MS = 1500;

/** Listens until the returned function is called. */
export function watchKeys(): () => void {
  let wentAtMs = -SEQUENCE_MS;
  const listener = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (
      shortcuts.peek() === "off" ||
      isTyping(event.target) ||
      document.querySelector("dialog[open]") !== null
    )
      return;
    const isSecond = event.timeStamp - wentAtMs < SEQUENCE_MS;
    wentAtMs = -SEQUENCE_MS;
    const place = isSecond ? PLACES[event.key] : undefined;
    if (place !== undefined) goTo(hrefTo(place[0] === "" ? [] : [place[0]]));
    else if (event.key === "g") wentAtMs = event.timeStamp;
    else if (event.key === "/") document.querySelector<HTMLElement>("#quick-search")?.focus();
    else if (event.key === "?") helpIsOpen.value = true;
    else if (event.key === "r") reloadPage();
    else if (event.key === "j" || event.key === "k") moveRow(event.key === "j" ? 1 : -1);
    else return;
    event.preventDefault();
  };
  document.addEventListener("keydown", listener);
  return () => document.removeEventListener("keydown", listener);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select") !== null;
}

/** Moves the focus to the link of the next or previous row of the lists on the page. */
function moveRow(by: 1 | -1): void {
  const rows = [
    ...document.querySelectorAll<HTMLElement>("main tbody tr, main .causes > li, main .list > li"),
  ];
  const links = rows.flatMap((row) => row.querySelector<HTMLElement>("a[href]") ?? []);
  const current = rows.findIndex((row) => row.contains(document.activeElement));
  const at =
    current < 0 ? (by === 1 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, current + by));
  links[at]?.focus();
}

export function HelpDialog(): JSX.Element | null {
  return helpIsOpen.value ? <OpenHelp /> : null;
}

function OpenHelp(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="help-title"
      onClose={() => (helpIsOpen.value = false)}
    >
      <h2 id="help-title">Help</h2>
      <div class="help">
        <dl>
          <Key keys={["/"]} what="Search any id" />
          <Key keys={["j", "k"]} what="Next and previous row" />
          <Key keys={["Enter"]} what="Open the row" />
          <Key keys={["r"]} what="Read the page again" />
          <Key keys={["?"]} what="This help" />
          <Key keys={["Esc"]} what="Close a dialog" />
        </dl>
        <dl>
          {Object.entries(PLACES).map(([key, [, title]]) => (
            <Key key={key} keys={["g", key]} what={title} />
          ))}
        </dl>
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={shortcuts.value === "on"}
          onChange={(event) => (shortcuts.value = event.currentTarget.checked ? "on" : "off")}
        />
        Shortcuts of one key are on
      </label>
      <div class="buttons">
        <button
          type="button"
          class="btn"
          onClick={() => {
            dialog.current?.close();
            tourOffer.value = "closed";
            startTour();
          }}
        >
          Take the tour
        </button>
        <button type="button" class="btn primary" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}

function Key({ keys, what }: { keys: readonly string[]; what: string }): JSX.Element {
  return (
    <div>
      <dt>
        {keys.map((key) => (
          <kbd key={key}>{key}</kbd>
        ))}
      </dt>
      <dd>{what}</dd>
    </div>
  );
}
