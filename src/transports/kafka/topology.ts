import { createHash } from "node:crypto";

const MAX_NAME_LENGTH = 249;
const MAX_CACHED_TOPICS = 1_000;

/** Builds every topic and group name at the broker. Names depend only on the prefix, so that all processes agree. */
export class Topology {
  readonly #prefix: string;
  readonly #topics = new Map<string, string>();

  constructor(prefix = "") {
    this.#prefix = prefix;
  }

  topicName(topic: string): string {
    const known = this.#topics.get(topic);
    if (known !== undefined) return known;
    if (this.#topics.size >= MAX_CACHED_TOPICS) this.#topics.clear();
    const name = shortenName(`${this.#prefix}${topic}`, "");
    this.#topics.set(topic, name);
    return name;
  }

  groupName(service: string, group: string): string {
    return `${this.#prefix}${service}.${group}`;
  }

  /** The topic for dead letters of all groups that read a topic. */
  deadLetterTopic(topic: string): string {
    return shortenName(`${this.#prefix}${topic}`, ".dlq");
  }

  /** The topic for messages that one group retries later; `step` counts from 1. */
  retryTopic(topic: string, service: string, group: string, step: number): string {
    return shortenName(`${this.#prefix}${topic}.${service}.${group}`, `.retry-${step}`);
  }
}

// Kafka allows 249 characters. A longer name is cut and gets a digest of the full name.
function shortenName(name: string, suffix: string): string {
  const legal = name.replaceAll(/[^A-Za-z0-9._-]/g, "_");
  const changed = legal !== name || legal.length + suffix.length > MAX_NAME_LENGTH;
  if (!changed) return `${legal}${suffix}`;
  const digest = createHash("sha256").update(name).digest("hex").slice(0, 16);
  return `${legal.slice(0, MAX_NAME_LENGTH - suffix.length - digest.length - 1)}-${digest}${suffix}`;
}

/** Returns the first step that is at least `delayMs` long, counted from 1, or the last step if none is. */
export function retryStep(delayMs: number, stepsMs: readonly number[]): number {
  const found = stepsMs.findIndex((stepMs) => delayMs <= stepMs);
  return found === -1 ? stepsMs.length : found + 1;
}
