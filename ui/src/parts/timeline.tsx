// A timeline: what happened, when, and how long after the moment before.
import type { ComponentChildren, JSX } from "preact";
import { formatMs } from "../format.ts";
import { Time } from "./text.tsx";

export interface TimelineItem {
  readonly key: string;
  readonly at: string;
  readonly what: ComponentChildren;
  readonly detail?: ComponentChildren;
  readonly tone?: "ok" | "warn" | "bad" | "busy" | "idle";
}

export function Timeline({ items, label }: { items: readonly TimelineItem[]; label: string }): JSX.Element {
  return (
    <ol class="timeline" aria-label={label}>
      {items.map((item, index) => {
        const before = items[index - 1];
        const gapMs = before === undefined ? 0 : Date.parse(item.at) - Date.parse(before.at);
        return (
          <li key={item.key} class={item.tone ?? "idle"}>
            <div class="when">
              <Time at={item.at} />
              {before !== undefined && gapMs > 0 && <span class="gap">+{formatMs(gapMs)}</span>}
            </div>
            <div class="what">
              <div>{item.what}</div>
              {item.detail !== undefined && <div class="detail">{item.detail}</div>}
            </div>
          </li>
        );
      })}
    </ol>
  );
}
