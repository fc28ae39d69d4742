import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** SAGABOX_PROOF=full runs the whole figures; anything else a tenth. */
export const full = process.env["SAGABOX_PROOF"] === "full";

/** Whoever asks for all gets every way, if only quickly. */
export const everyMode = full || process.env["SAGABOX_REQUIRE"] === "all";

/** The figure for this tier. */
export function figure(whole: number, quick = Math.ceil(whole / 10)): number {
  return full ? whole : quick;
}

/** Both ways of a message, in a quick run too where all is asked for; else one of them, so that `npm test` stays short. */
export function chooseModes<Way extends string>(quick: Way, other: Way): readonly Way[] {
  return everyMode ? [quick, other] : [quick];
}

/** One line per proof, for whoever reads the run. */
export function report(proof: string, figures: Readonly<Record<string, string | number>>): void {
  const pairs = Object.entries(figures).map(([name, value]) => `${name} ${value}`);
  process.stdout.write(`proof ${proof}: ${pairs.join(", ")}\n`);
}

/** Everything a person needs to find out what happened, kept when a promise was broken. */
export function keepEvidence(...evidence: readonly unknown[]): void {
  const path = join(tmpdir(), `sagabox-proof-${process.pid}-${Date.now()}.json`);
  writeFileSync(path, JSON.stringify(evidence));
  process.stdout.write(`proof: evidence kept in ${path}\n`);
}
