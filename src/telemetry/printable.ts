// Characters that move the cursor, hide or reorder text: C1 controls, invisible joiners, direction marks, line
// and paragraph separators, tags. A terminal or a viewer would act on them instead of showing them.
const DECEPTIVE =
  /[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]|[\u{e0000}-\u{e007f}]/gu;
// eslint-disable-next-line no-control-regex -- the pattern must match control characters
const CONTROL = /[\u0000-\u001f]/g;

/** Escapes control and deceptive characters, so that a terminal shows the text literally on one line. */
export function printable(text: string): string {
  return text.replace(CONTROL, controlEscape).replace(DECEPTIVE, unicodeEscape);
}

/** Formats a value as JSON on one line with deceptive characters escaped. It parses to an equal value. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value).replace(DECEPTIVE, unicodeEscape);
}

/** Masks the passwords of connection URLs in a text. Cut long texts first. */
export function withoutPasswords(text: string): string {
  return text
    .replace(/(\b[a-z][a-z0-9+.-]{0,30}:\/\/[^\s:/?#@]{0,100}):\S*@/gi, "$1:***@")
    .replace(/\b(password|passwd|pwd)=[^\s&'"]+/gi, "$1=***");
}

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

function controlEscape(character: string): string {
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  return unicodeEscape(character);
}

function unicodeEscape(characters: string): string {
  let escaped = "";
  for (let i = 0; i < characters.length; i++) {
    escaped += `\\u${characters.charCodeAt(i).toString(16).padStart(4, "0")}`;
  }
  return escaped;
}
