/** Escapes text so that it cannot end a Mermaid label or start a statement. */
export function mermaidText(text: string): string {
  return text.replaceAll(/[^\p{L}\p{N} .,:+_()/→-]/gu, "_").slice(0, 200);
}

/** Formats a duration for people, in a fitting unit. */
export function durationText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${(ms / 60_000).toFixed(1)} min`;
  return ms < 172_800_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 86_400_000).toFixed(1)} d`;
}
