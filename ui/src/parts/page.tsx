// The frame of a page: title, age of the data, errors, empty states.
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { CallError } from "../api.ts";
import { nowMs } from "../clock.ts";
import { formatSeconds, formatTime } from "../format.ts";
import { zone } from "../preferences.ts";
import type { Read } from "../use-read.ts";
import { Copy } from "./text.tsx";

interface PageProps {
  readonly title: string;
  /** One sentence under the title: what the page is for. */
  readonly lead?: ComponentChildren;
  readonly read?: Pick<Read<unknown>, "readAtMs" | "isLoading" | "reload" | "error">;
  /** The page as Markdown, for a hand-over. */
  readonly markdown?: () => string;
  readonly tools?: ComponentChildren;
  readonly children: ComponentChildren;
}

export function Page({ title, lead, read, markdown, tools, children }: PageProps): JSX.Element {
  useEffect(() => {
    document.title = `${title} · sagabox`;
  }, [title]);
  return (
    <>
      <header class="page-head">
        <div>
          <h1 tabIndex={-1}>{title}</h1>
          {lead !== undefined && <p class="lead">{lead}</p>}
        </div>
        <div class="tools">
          {tools}
          {markdown !== undefined && (
            <Copy text={markdown} label="Copy as Markdown" what="this page as Markdown" />
          )}
          {read !== undefined && <Freshness read={read} />}
        </div>
      </header>
      {read?.error !== undefined && read.readAtMs !== undefined && (
        <ErrorBox error={read.error} isOld onRetry={read.reload} />
      )}
      {children}
    </>
  );
}

function Freshness({ read }: { read: NonNullable<PageProps["read"]> }): JSX.Element {
  const age = read.readAtMs === undefined ? undefined : (nowMs.value - read.readAtMs) / 1000;
  return (
    <span class="freshness">
      {age === undefined || read.readAtMs === undefined ? (
        <span class="muted">{read.isLoading ? "Reading…" : "Not read yet"}</span>
      ) : (
        <span class={age > 60 ? "old" : "muted"}>
          as of {formatTime(read.readAtMs, zone.value, nowMs.value)} · {formatSeconds(age)} ago
        </span>
      )}
      <button
        type="button"
        class="btn tiny"
        onClick={read.reload}
        aria-label="Read again"
        aria-keyshortcuts="r"
      >
        Refresh
      </button>
    </span>
  );
}

/** Shows data when they are there; before that the failure, or grey bars of about the right height. */
export function Loaded<T>({
  read,
  children,
  lines = 6,
}: {
  read: Read<T>;
  children: (data: T) => ComponentChildren;
  lines?: number;
}): JSX.Element {
  if (read.data !== undefined) return <div class="loaded">{children(read.data)}</div>;
  if (read.error !== undefined) return <ErrorBox error={read.error} onRetry={read.reload} />;
  return <Skeleton lines={lines} />;
}

export function Skeleton({ lines }: { lines: number }): JSX.Element {
  return (
    <div class="skeleton" aria-busy="true">
      <span class="offscreen">Reading…</span>
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} />
      ))}
    </div>
  );
}

const ADVICE: Readonly<Record<string, string>> = {
  DATABASE_SLOW:
    "The query was stopped so that it does not slow the workers down. Narrow the filter or the time range, then try again.",
  DATABASE_UNAVAILABLE:
    "The dashboard cannot reach PostgreSQL. Workers may be affected as well: check the database first.",
  TOO_MANY_REQUESTS: "Wait a moment, then try again.",
  PLAN_OUTDATED: "The data have changed since the plan was made. Make the plan again and look at it.",
};

export function ErrorBox({
  error,
  onRetry,
  isOld = false,
}: {
  error: CallError;
  onRetry?: () => void;
  isOld?: boolean;
}): JSX.Element {
  return (
    <div class="box bad" role="alert">
      <p>
        <strong>{isOld ? "Could not refresh; what is below is older. " : ""}</strong>
        {error.message}
      </p>
      {ADVICE[error.code] !== undefined && <p>{ADVICE[error.code]}</p>}
      <p class="muted small">
        <code>{error.code}</code>
        {error.reference !== null && ` · reference ${error.reference} in the log of the server`}
      </p>
      {onRetry !== undefined && (
        <button type="button" class="btn" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** What to say instead of an empty table: why it is empty, and what to do. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

interface PanelProps {
  readonly title: string;
  readonly id?: string;
  /** Its name in the tour. */
  readonly tour?: string;
  readonly tools?: ComponentChildren;
  readonly children: ComponentChildren;
  readonly class?: string;
}

export function Panel({ title, id, tour, tools, children, class: extra = "" }: PanelProps): JSX.Element {
  return (
    <section class={`panel ${extra}`} id={id} aria-label={title} data-tour={tour}>
      <div class="panel-head">
        <h2>{title}</h2>
        {tools !== undefined && <div class="tools">{tools}</div>}
      </div>
      {children}
    </section>
  );
}

/** Names and values. Null values are shown as a dash. */
export function Facts({ items }: { items: readonly (readonly [string, ComponentChildren])[] }): JSX.Element {
  return (
    <dl class="facts">
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {value === null || value === undefined || value === "" ? <span class="none">–</span> : value}
          </dd>
        </div>
      ))}
    </dl>
  );
}
