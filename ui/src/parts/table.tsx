// Tables with pages. A page is found by its last row, so that reading far back costs no more than the first page.
import type { ComponentChildren, JSX } from "preact";
import { hrefTo, route } from "../router.ts";

export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  /** Numbers stand on the right. */
  readonly isNumber?: boolean;
  /** Long text may use what is left, and is cut there. */
  readonly isWide?: boolean;
}

interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
}

/** On a narrow screen each row becomes a block with its column titles. */
export function Table<T>({ label, columns, rows, keyOf }: TableProps<T>): JSX.Element {
  return (
    <div class="scroller" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map(({ title, isNumber }) => (
              <th key={title} scope="col" class={isNumber === true ? "number" : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ title, cell, isNumber, isWide }) => (
                <td
                  key={title}
                  data-title={title}
                  class={isNumber === true ? "number" : isWide === true ? "wide" : undefined}
                >
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Links to the first and the next page. "Back" of the browser is the previous one. */
export function Pager({ next, shown }: { next: string | null; shown: number }): JSX.Element | null {
  const { path, query } = route.value;
  const isFirst = query["after"] === undefined;
  if (isFirst && next === null) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      {!isFirst && (
        <a class="btn" href={hrefTo(path, { ...query, after: undefined })}>
          First page
        </a>
      )}
      <span class="muted">{shown} on this page</span>
      {next !== null && (
        <a class="btn" href={hrefTo(path, { ...query, after: next })}>
          Next page
        </a>
      )}
    </nav>
  );
}
