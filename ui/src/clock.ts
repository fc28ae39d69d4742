// One tick a second for all ages on the page. It stops while the tab is hidden.
import { signal } from "@preact/signals";

export const nowMs = signal(Date.now());
export const isVisible = signal(document.visibilityState !== "hidden");

/** How far the database clock is ahead of this computer, so that ages and countdowns are right on a computer that is wrong. */
let aheadMs = 0;

setInterval(() => {
  if (isVisible.peek()) nowMs.value = Date.now();
}, 1000);

document.addEventListener("visibilitychange", () => {
  nowMs.value = Date.now();
  isVisible.value = document.visibilityState !== "hidden";
});

/** Takes over the clock of the server from the time of an answer. Differences below two seconds are its way here. */
export function learnClock(at: string): void {
  const difference = Date.parse(at) - Date.now();
  if (!Number.isNaN(difference)) aheadMs = Math.abs(difference) < 2000 ? 0 : difference;
}

/** Seconds since a time of the server. Negative for a time to come. */
export function secondsSince(at: string): number {
  return (nowMs.value + aheadMs - Date.parse(at)) / 1000;
}
