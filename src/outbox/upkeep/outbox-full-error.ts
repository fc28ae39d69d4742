import { SagaboxError } from "../../errors/index.ts";

export interface Overflow {
  readonly topic: string;
  /** An estimate, at most a second old. */
  readonly depth: number;
  readonly limit: number;
}

/** Nothing was written. Try later, or look at why the messages of this topic are not sent. */
export class OutboxFullError extends SagaboxError<"OUTBOX_FULL"> {
  readonly topic: string;
  readonly depth: number;
  readonly limit: number;

  constructor({ topic, depth, limit }: Overflow, remedy: string) {
    super(
      "OUTBOX_FULL",
      `About ${depth} messages wait for topic "${topic}", the limit is ${limit}. ${remedy}`,
    );
    this.topic = topic;
    this.depth = depth;
    this.limit = limit;
  }
}

Object.defineProperty(OutboxFullError.prototype, "name", {
  value: "OutboxFullError",
  writable: true,
  configurable: true,
});
