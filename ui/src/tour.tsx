// A tour of six steps for newcomers. It points at real parts of real pages.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { tourOffer } from "./preferences.ts";
import { goTo, hrefTo, route } from "./router.ts";
import { me } from "./session.ts";

interface Step {
  readonly title: string;
  readonly text: string;
  readonly path: readonly string[];
  /** What is outlined: a `data-tour` name. */
  readonly target: string;
}

const STEPS: readonly Step[] = [
  {
    title: "The verdict",
    text: "One sentence says whether all is well. If not, it says what is wrong, since when, and the next action.",
    path: [],
    target: "verdict",
  },
  {
    title: "What moves",
    text: "A message is published in your transaction, sent by a worker, and handled once by each consumer. These figures follow it; each leads to its page.",
    path: [],
    target: "figures",
  },
  {
    title: "Any id",
    text: "Paste any id from a log or an error: a message, a saga, a key, a trace. The answer says what happened, why it is where it is, and what comes next.",
    path: ["search"],
    target: "search",
  },
  {
    title: "Dead letters",
    text: "A message that fails for good is kept here, grouped by cause. Nothing is lost, and nothing is handled until a person decides.",
    path: ["dead-letters"],
    target: "causes",
  },
  {
    title: "Replay as a plan",
    text: "After the cause is repaired, a replay begins with a plan: a few messages first, then more. It stops by itself when the failure comes back.",
    path: ["dead-letters"],
    target: "replay",
  },
  {
    title: "Sagas",
    text: "Each order, booking or transfer is drawn as a graph: the path it took, what was undone, and the time until its next timeout. Actions are offered only where they are legal.",
    path: ["sagas"],
    target: "sagas",
  },
];

const at = signal<number | undefined>(undefined);

export function startTour(): void {
  go(0);
}

function go(index: number | undefined): void {
  at.value = index;
  const step = index === undefined ? undefined : STEPS[index];
  if (step !== undefined && route.peek().path.join("/") !== step.path.join("/")) goTo(hrefTo(step.path));
}

export function Tour(): JSX.Element | null {
  const index = at.value;
  const step = index === undefined ? undefined : STEPS[index];
  if (index !== undefined && step !== undefined) return <OpenStep key={index} index={index} step={step} />;
  if (me.value?.hasDemo !== true || tourOffer.value === "closed") return null;
  return (
    <aside class="tour" aria-label="Tour">
      <p>
        <strong>New here?</strong> Six steps show what this page is for.
      </p>
      <div class="buttons">
        <button type="button" class="btn" onClick={() => (tourOffer.value = "closed")}>
          No, thanks
        </button>
        <button
          type="button"
          class="btn primary"
          onClick={() => {
            tourOffer.value = "closed";
            startTour();
          }}
        >
          Take the tour
        </button>
      </div>
    </aside>
  );
}

function OpenStep({ index, step }: { index: number; step: Step }): JSX.Element {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    box.current?.focus();
    const selector = `[data-tour="${step.target}"]`;
    let marked: Element | null = null;
    // The page may still be reading when the step begins.
    const mark = (): void => {
      const found = document.querySelector(selector);
      if (found === marked) return;
      marked?.classList.remove("toured");
      marked = found;
      found?.classList.add("toured");
      found?.scrollIntoView({ block: "nearest" });
    };
    mark();
    const watcher = new MutationObserver(mark);
    watcher.observe(document.body, { childList: true, subtree: true });
    return () => {
      watcher.disconnect();
      marked?.classList.remove("toured");
    };
  }, [step]);
  const isLast = index === STEPS.length - 1;
  return (
    <aside
      class="tour"
      aria-label={`Tour, step ${index + 1} of ${STEPS.length}`}
      tabIndex={-1}
      ref={box}
      onKeyDown={(event) => {
        if (event.key === "Escape") go(undefined);
      }}
    >
      <p class="muted small">
        Step {index + 1} of {STEPS.length}
      </p>
      <h2>{step.title}</h2>
      <p>{step.text}</p>
      <div class="buttons">
        <button type="button" class="btn" onClick={() => go(undefined)}>
          End
        </button>
        {index > 0 && (
          <button type="button" class="btn" onClick={() => go(index - 1)}>
            Back
          </button>
        )}
        <button type="button" class="btn primary" onClick={() => go(isLast ? undefined : index + 1)}>
          {isLast ? "Done" : "Next"}
        </button>
      </div>
    </aside>
  );
}
