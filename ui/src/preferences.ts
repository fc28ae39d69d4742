// What a person chose for this browser. It works without storage, which some browsers forbid.
import { effect, signal, type Signal } from "@preact/signals";

export const theme = stored("theme", ["system", "light", "dark"] as const);
export const zone = stored("zone", ["local", "utc"] as const);
/** Shortcuts of one key can be switched off, for speech input. */
export const shortcuts = stored("shortcuts", ["on", "off"] as const);
export const tourOffer = stored("tour", ["open", "closed"] as const);

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});

function stored<T extends string>(name: string, values: readonly [T, ...T[]]): Signal<T> {
  const key = `sagabox.${name}`;
  const found = read(key);
  const value = signal<T>(values.find((candidate) => candidate === found) ?? values[0]);
  effect(() => write(key, value.value));
  return value;
}

function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
}
