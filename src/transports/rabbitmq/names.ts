import { createHash } from "node:crypto";
import { laneOf, type Message } from "../../message/index.ts";

/** The broker allows 255 bytes for a name or a routing key; what is longer keeps its beginning and gets a digest. */
export function fit(text: string, most: number): string {
  if (Buffer.byteLength(text) <= most) return text;
  const digest = createHash("sha256").update(text).digest("hex").slice(0, 16);
  return `${text.slice(0, most - 17)}~${digest}`;
}

/** Letters, digits, dashes, underscores and dots stay; any other byte becomes `~` and its two hexadecimal digits. */
function readable(text: string): string {
  return text.replaceAll(/[^A-Za-z0-9._-]/gu, (letter) =>
    [...Buffer.from(letter)].map((byte) => `~${byte.toString(16).padStart(2, "0")}`).join(""),
  );
}

/** One word of a routing key: without dots, which part the words. */
export function word(text: string, most = 50): string {
  return fit(readable(text).replaceAll(".", "~2e"), most);
}

/** Service and group as names at the broker carry them. */
export function groupId(service: string, group: string): string {
  return `${word(service)}.${fit(readable(group), 110)}`;
}

const laneBits = 8;

/**
 * The second routing key of every message: its lane in binary, lowest bit first, one bit a word. A group of 2^k
 * partitions reads k words of it, so each group chooses its own number and no publisher has to know it.
 */
export function laneKey(message: Pick<Message, "key" | "id">): string {
  return `~lane.${bitsOf(laneOf(message.key ?? message.id), laneBits).join(".")}`;
}

export function laneBinding(partition: number, partitions: number): string {
  return ["~lane", ...bitsOf(partition, Math.log2(partitions)), "#"].join(".");
}

function bitsOf(value: number, count: number): number[] {
  return Array.from({ length: count }, (_, bit) => (value >> bit) & 1);
}
