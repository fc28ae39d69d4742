import { createHash } from "node:crypto";
import { laneCount, laneFor, type Message } from "../../message/index.ts";

/** The broker allows 255 bytes for a name or a routing key; what is longer keeps its beginning and gets a digest. */
export function fitName(text: string, most: number): string {
  if (Buffer.byteLength(text) <= most) return text;
  const digest = createHash("sha256").update(text).digest("hex").slice(0, 16);
  return `${text.slice(0, most - 17)}~${digest}`;
}

/** Letters, digits, dashes, underscores and dots stay; any other byte becomes `~` and its two hexadecimal digits. */
function toReadable(text: string): string {
  return text.replaceAll(/[^A-Za-z0-9._-]/gu, (letter) =>
    [...Buffer.from(letter)].map((byte) => `~${byte.toString(16).padStart(2, "0")}`).join(""),
  );
}

/** One word of a routing key: without dots, which part the words. */
export function toWord(text: string, most = 50): string {
  return fitName(toReadable(text).replaceAll(".", "~2e"), most);
}

/** Service and group as names at the broker carry them. */
export function formatGroupId(service: string, group: string): string {
  return `${toWord(service)}.${fitName(toReadable(group), 110)}`;
}

const LANES_PER_WORD = 16;

const laneKeys = Array.from({ length: laneCount }, (_, lane) => formatLaneKey(lane));

/**
 * The second routing key of every message: its lane as two words of four bits, the lower ones first. A group reads one
 * word or both, so each group chooses its own number of partitions and no publisher has to know it.
 */
export function laneKey(message: Pick<Message, "key" | "id">): string {
  const lane = laneFor(message.key ?? message.id);
  return laneKeys[lane] ?? formatLaneKey(lane);
}

/** The broker looks at each word of a key in turn, so up to 16 partitions are bound by the first word alone. */
export function laneBindings(partition: number, partitions: number): string[] {
  const oneWord = partitions <= LANES_PER_WORD;
  const bindings: string[] = [];
  for (let lane = partition; lane < (oneWord ? LANES_PER_WORD : laneCount); lane += partitions)
    bindings.push(oneWord ? `~${lane}.*` : formatLaneKey(lane));
  return bindings;
}

function formatLaneKey(lane: number): string {
  return `~${lane % LANES_PER_WORD}.${Math.floor(lane / LANES_PER_WORD)}`;
}
