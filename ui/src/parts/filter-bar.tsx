// Filters. Their values live in the address, so that a filtered view can be linked, and "back" undoes a filter.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { route, setQuery } from "../router.ts";

export interface Filter {
  readonly name: string;
  readonly label: string;
  /** A choice of these; without it a text. The empty value means "any". */
  readonly values?: readonly (string | readonly [string, string])[];
  readonly kind?: "text" | "time";
  readonly placeholder?: string;
  /** Shown behind "More filters" while it is not used. */
  readonly isRare?: boolean;
  /** Why this person cannot use it; null if they can. */
  readonly whyNot?: string | null;
}

export function FilterBar({ filters, label }: { filters: readonly Filter[]; label: string }): JSX.Element {
  const { query } = route.value;
  const isRare = ({ name, isRare: rarely }: Filter): boolean => rarely === true && query[name] === undefined;
  const common = filters.filter((filter) => !isRare(filter));
  const rare = filters.filter(isRare);
  const field = (filter: Filter): JSX.Element => (
    <Field key={filter.name} filter={filter} value={query[filter.name] ?? ""} />
  );
  const used = filters.filter(({ name }) => query[name] !== undefined);
  return (
    <form class="filters" role="search" aria-label={label} onSubmit={(event) => event.preventDefault()}>
      {common.map(field)}
      {rare.length > 0 && (
        <details class="more-filters">
          <summary>More filters</summary>
          <div class="filters">{rare.map(field)}</div>
        </details>
      )}
      {used.length > 0 && (
        <button
          type="button"
          class="btn"
          onClick={() => setQuery(Object.fromEntries(filters.map(({ name }) => [name, undefined])))}
        >
          Clear {used.length === 1 ? "filter" : `${used.length} filters`}
        </button>
      )}
    </form>
  );
}

function Field({ filter, value }: { filter: Filter; value: string }): JSX.Element {
  const { name, label, values, kind = "text", placeholder, whyNot = null } = filter;
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const commit = (): void => {
    const next = kind === "time" ? toIso(text) : text.trim();
    if (next !== value) setQuery({ [name]: next });
  };
  return (
    <label class={value === "" ? "filter" : "filter used"} title={whyNot ?? undefined}>
      <span>{label}</span>
      {values === undefined ? (
        <input
          {...(kind === "time" ? { type: "datetime-local" as const, step: 1 } : { type: "text" as const })}
          name={name}
          value={kind === "time" ? toLocal(text) : text}
          placeholder={whyNot === null ? placeholder : "hidden from you"}
          disabled={whyNot !== null}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setText(event.currentTarget.value)}
          onBlur={commit}
          onKeyDown={(event) => {
            if (event.key === "Enter") commit();
          }}
        />
      ) : (
        <select
          name={name}
          value={value}
          onChange={(event) => setQuery({ [name]: event.currentTarget.value })}
        >
          <option value="">any</option>
          {withCurrent(values, value).map(([id, shown]) => (
            <option key={id} value={id}>
              {shown}
            </option>
          ))}
        </select>
      )}
    </label>
  );
}

/** A value from a link is offered even if the server does not know it any more. */
function withCurrent(values: NonNullable<Filter["values"]>, current: string): (readonly [string, string])[] {
  const pairs = values.map((value) =>
    typeof value === "string" ? ([value, value.replaceAll("_", " ")] as const) : value,
  );
  return current === "" || pairs.some(([id]) => id === current) ? pairs : [...pairs, [current, current]];
}

function toIso(local: string): string {
  const ms = Date.parse(local);
  return local === "" || Number.isNaN(ms) ? "" : new Date(ms).toISOString();
}

/** The form that <input type="datetime-local"> wants, in the zone of this computer. */
function toLocal(text: string): string {
  const ms = Date.parse(text);
  if (text === "" || Number.isNaN(ms) || !text.endsWith("Z")) return text;
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
