/** Text that cannot end a label or start a statement of Mermaid's, whoever chose it. */
export function mermaidText(text: string): string {
  return text.replaceAll(/[^\p{L}\p{N} .,:+_()/→-]/gu, "_").slice(0, 200);
}

/** A length of time for people, in the unit that fits. */
export function durationText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${(ms / 60_000).toFixed(1)} min`;
  return ms < 172_800_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 86_400_000).toFixed(1)} d`;
}
