// Reads a route for a page: keeps what was shown until the next answer, so that nothing jumps.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { RouteName } from "../../src/dashboard/api-types.ts";
import { call, CallError, errorText, type Answer, type CallInput } from "./api.ts";
import { isVisible, learnClock } from "./clock.ts";

export interface Read<T> {
  readonly data: T | undefined;
  /** The last failure; undefined after a success. `data` may still hold an older answer. */
  readonly error: CallError | undefined;
  readonly isLoading: boolean;
  /** When `data` arrived, on the clock of this computer. */
  readonly readAtMs: number | undefined;
  readonly reload: () => void;
}

/** What the key `r` reads again. */
const shown = new Set<() => void>();

export function reloadPage(): void {
  for (const reload of shown) reload();
}

/** Raised by an action that changed something, so that the page below reads again. */
export const changes = signal(0);

interface Options {
  /** Reads again this often while the tab is visible. */
  readonly everyMs?: number | undefined;
}

/** Reads a route. `input` null reads nothing yet. */
export function useRead<N extends RouteName>(
  name: N,
  input: CallInput<N> | null,
  options: Options = {},
): Read<Answer<N>> {
  const [state, setState] = useState<Omit<Read<Answer<N>>, "reload">>(NOTHING);
  const [round, setRound] = useState(0);
  const reload = useRef(() => setRound((value) => value + 1)).current;
  const key = input === null ? undefined : JSON.stringify([name, input]);
  const subject = input === null ? undefined : JSON.stringify([name, (input as { params?: unknown }).params]);
  const lastSubject = useRef(subject);
  const { everyMs } = options;
  const changed = changes.value;
  const visible = isVisible.value;

  useEffect(() => {
    shown.add(reload);
    return () => void shown.delete(reload);
  }, [reload]);

  useEffect(() => {
    if (input === null) {
      setState(NOTHING);
      return undefined;
    }
    const abort = new AbortController();
    const isOther = lastSubject.current !== subject;
    lastSubject.current = subject;
    setState((old) => (isOther ? { ...NOTHING, isLoading: true } : { ...old, isLoading: true }));
    call(name, input, abort.signal).then(
      (data) => {
        if (abort.signal.aborted) return;
        const { at } = data as { at?: unknown };
        if (typeof at === "string") learnClock(at);
        setState({ data, error: undefined, isLoading: false, readAtMs: Date.now() });
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failure =
          error instanceof CallError ? error : new CallError("PAGE_FAILED", 0, errorText(error));
        setState((old) => ({ ...old, error: failure, isLoading: false }));
      },
    );
    return () => abort.abort();
    // The key stands for name and input.
  }, [key, round, changed]);

  useEffect(() => {
    if (everyMs === undefined || !visible || key === undefined) return undefined;
    // After a pause the first reading does not wait for the interval.
    if (Date.now() - (state.readAtMs ?? Date.now()) > everyMs) reload();
    const timer = setInterval(reload, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, visible, key, reload]);

  return { ...state, reload };
}

const NOTHING = { data: undefined, error: undefined, isLoading: false, readAtMs: undefined };
