// The live stream: one for the whole page. It closes while the tab is hidden, and becomes polling if it cannot be opened.
import { effect, signal } from "@preact/signals";
import type { DemoView, Job, LiveEvent, LivePoint, OverviewView } from "../../src/dashboard/api-types.ts";
import { addressOf, call, CallError } from "./api.ts";
import { isVisible, learnClock } from "./clock.ts";
import { isSignedIn, signedOut } from "./session.ts";

export const overview = signal<OverviewView | undefined>(undefined);
export const overviewError = signal<CallError | undefined>(undefined);
export const jobs = signal<ReadonlyMap<string, Job>>(new Map());
export const demo = signal<DemoView | undefined>(undefined);
export const point = signal<LivePoint | undefined>(undefined);
/** When the last line arrived, on the clock of this computer. */
export const heardAtMs = signal<number | undefined>(undefined);
export const connection = signal<"connecting" | "live" | "polling" | "paused" | "lost">("connecting");

const POLL_MS = 10_000;
const SILENCE_MS = 40_000;

effect(() => {
  if (!isSignedIn.value) return undefined;
  if (!isVisible.value) {
    connection.value = "paused";
    return undefined;
  }
  const abort = new AbortController();
  void follow(abort.signal);
  return () => abort.abort();
});

async function follow(signal: AbortSignal): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    const lasted = await readStream(signal).catch(() => 0);
    if (signal.aborted) return;
    failures = lasted > 60_000 ? 0 : failures + 1;
    // One break is a restart of the server. More of them mean that something in between does not let streams pass.
    if (failures > 1) await poll(signal, Math.min(failures, 12));
    else await pause(500, signal);
  }
}

async function readStream(signal: AbortSignal): Promise<number> {
  const startedMs = Date.now();
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await fetch(addressOf("live", {}), {
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.any([signal, silence.signal]),
    });
    if (response.status === 401) signedOut();
    if (!response.ok || response.body === null) return 0;
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return Date.now() - startedMs;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      connection.value = "live";
      for (const line of lines) if (line !== "") take(JSON.parse(line) as LiveEvent);
    }
  } finally {
    clearTimeout(timer);
  }
}

function take(event: LiveEvent): void {
  heardAtMs.value = Date.now();
  switch (event.kind) {
    case "overview":
      return takeOverview(event.data);
    case "job":
      return takeJob(event.data);
    case "demo":
      demo.value = event.data;
      return;
    case "point":
      point.value = event.data;
      return;
    case "signed-out":
      return signedOut();
    case "ping":
      return learnClock(event.at);
  }
}

function takeOverview(view: OverviewView): void {
  learnClock(view.at);
  overview.value = view;
  overviewError.value = undefined;
}

export function takeJob(job: Job): void {
  jobs.value = new Map(jobs.peek()).set(job.id, job);
}

async function poll(signal: AbortSignal, rounds: number): Promise<void> {
  for (let round = 0; round < rounds && !signal.aborted; round++) {
    try {
      takeOverview(await call("overview", {}, signal));
      const running = await call("jobs.list", {}, signal);
      jobs.value = new Map(running.items.map((job) => [job.id, job]));
      heardAtMs.value = Date.now();
      connection.value = "polling";
    } catch (error) {
      if (signal.aborted) return;
      connection.value = "lost";
      if (error instanceof CallError) overviewError.value = error;
    }
    await pause(POLL_MS, signal);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
