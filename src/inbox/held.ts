import type { Delivery } from "../transport/index.ts";
import type { Registration } from "./registry.ts";

/** A delivery in the hands of a consumer, from its arrival until it is settled. */
export interface Held {
  readonly delivery: Delivery;
  /** What dedupe hangs on; undefined when the message has no usable id. */
  readonly id: string | undefined;
  /** Undefined when nobody registered for its type. */
  readonly registration: Registration | undefined;
  /** It refers to earlier commands, so it takes part in no batch. */
  readonly refers: boolean;
  readonly arrivedMs: number;
  /** Set for suspects: how often a process died while it ran alone. */
  crashes: number | undefined;
  /** Personal texts in it, once it was read. */
  secrets?: readonly string[];
}
