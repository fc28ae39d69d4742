// Addresses. All state of a view is in the part after "#": it works at any sub-path, needs no server, survives reload and
// back, and ids that people search for do not end up in the access logs of proxies.
import { signal } from "@preact/signals";

export type Query = Readonly<Record<string, string>>;

export interface Route {
  /** Decoded segments: ["dead-letters", "<id>"]. */
  readonly path: readonly string[];
  readonly query: Query;
}

export const route = signal<Route>(parseHash(location.hash));

window.addEventListener("hashchange", () => {
  route.value = parseHash(location.hash);
});

export function parseHash(hash: string): Route {
  const [path, search] = split(hash.replace(/^#\/?/, ""));
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(search)),
  };
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** The address of a page: `hrefTo(["sagas", id])`. Empty values are left out. */
export function hrefTo(
  path: readonly string[],
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") search.set(key, value);
  }
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** The address of a link that the server names: "dead-letters?fingerprint=…". */
export function hrefOfLink(link: string): string {
  return `#/${link.replace(/^[#/]+/, "")}`;
}

export function goTo(href: string): void {
  location.hash = href;
}

/** Changes parameters of the current page and forgets the page of its list. `undefined` or "" removes one. */
export function setQuery(
  changes: Readonly<Record<string, string | undefined>>,
  options: { replace?: boolean } = {},
): void {
  const { path, query } = route.value;
  const href = hrefTo(path, { ...query, after: undefined, ...changes });
  if (options.replace !== true) {
    location.hash = href;
    return;
  }
  history.replaceState(history.state, "", href);
  route.value = parseHash(href);
}
