/** Text that cannot end a label or start a statement of Mermaid's, whoever chose it. */
export function mermaidText(text: string): string {
  return text.replaceAll(/[^\p{L}\p{N} .,:+_()/→-]/gu, "_").slice(0, 200);
}
