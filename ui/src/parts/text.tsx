// Small pieces of text: times, ages, ids, copy buttons.
import { useRef, useState } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";
import { nowMs, secondsSince } from "../clock.ts";
import { formatBoth, formatSeconds, formatTime, shortId } from "../format.ts";
import { announce } from "./announce.tsx";
import { zone } from "../preferences.ts";

/** A time in the chosen zone. The tooltip has both readings. */
export function Time({ at, age = false }: { at: string | null | undefined; age?: boolean }): JSX.Element {
  if (at === null || at === undefined) return <span class="none">–</span>;
  return (
    <span>
      <time class="nowrap" dateTime={at} title={formatBoth(at)}>
        {formatTime(at, zone.value, nowMs.value)}
      </time>
      {age && (
        <span class="muted">
          {" "}
          <Ago at={at} />
        </span>
      )}
    </span>
  );
}

/** "5 min ago", or "in 5 min". */
export function Ago({ at }: { at: string }): JSX.Element {
  const seconds = secondsSince(at);
  return (
    <span class="nowrap">
      {seconds >= 0 ? `${formatSeconds(seconds)} ago` : `in ${formatSeconds(-seconds)}`}
    </span>
  );
}

/** A button that copies a text. It works over plain http as well, where browsers offer no clipboard. */
export function Copy({
  text,
  label = "Copy",
  what,
}: {
  text: string | (() => string);
  label?: string;
  what: string;
}): JSX.Element {
  const [state, setState] = useState<"ready" | "copied" | "failed">("ready");
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const act = (): void => {
    void copyText(typeof text === "string" ? text : text()).then((copied) => {
      setState(copied ? "copied" : "failed");
      announce(copied ? `Copied ${what}` : `Copying is blocked. Select the text and copy it yourself.`);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => setState("ready"), 2000);
    });
  };
  return (
    <button
      type="button"
      class="btn tiny"
      onClick={act}
      aria-label={state === "ready" && label === "Copy" ? `Copy ${what}` : undefined}
    >
      {state === "ready" ? label : state === "copied" ? "Copied" : "Blocked"}
    </button>
  );
}

async function copyText(text: string): Promise<boolean> {
  if (window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused by the browser: the older way may still work.
    }
  }
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  // Inside an open dialog, nothing outside of it can be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  // Deprecated, and the only way without https.
  // oxlint-disable-next-line typescript/no-deprecated
  const copied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return copied;
}

/** A command line to copy. */
export function Command({ text, label }: { text: string; label?: string }): JSX.Element {
  return (
    <div class="command">
      {label !== undefined && <span class="muted">{label}</span>}
      <code tabIndex={0}>{text}</code>
      <Copy text={text} what="the command line" />
    </div>
  );
}

/** An id, shortened, with its full text in a tooltip and a copy button. */
export function Id({ id, href, full = false }: { id: string; href?: string; full?: boolean }): JSX.Element {
  const shown = full ? id : shortId(id);
  return (
    <span class="id">
      {href === undefined ? (
        <code title={id}>{shown}</code>
      ) : (
        <a href={href} title={id}>
          <code>{shown}</code>
        </a>
      )}
      {full && <Copy text={id} what="the id" />}
    </span>
  );
}

/** A text that the caller's role may not see. */
export function MaybeMasked({
  value,
  children,
}: {
  value: string | null;
  children?: ComponentChildren;
}): JSX.Element {
  if (value === null) return <span class="none">–</span>;
  return <>{children ?? value}</>;
}
