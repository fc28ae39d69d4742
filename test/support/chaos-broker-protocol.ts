import type { Message } from "sagabox";
import type { RetryOptions, Subscription } from "sagabox/transport";

export type Settled = "ack" | "release" | RetryOptions;

/** One JSON object per line, in both directions. */
export type FromClient =
  | { readonly op: "hello"; readonly worker: string }
  | { readonly op: "beat" }
  | { readonly op: "publish"; readonly n: number; readonly messages: readonly Message[] }
  | {
      readonly op: "join";
      readonly group: string;
      readonly topics: Subscription["topics"];
      readonly prefetch: number;
    }
  | { readonly op: "pause"; readonly group: string }
  | { readonly op: "leave"; readonly group: string }
  | { readonly op: "settle"; readonly tag: number; readonly how: Settled };

export type ToClient =
  | { readonly op: "published"; readonly n: number }
  | { readonly op: "joined"; readonly group: string }
  | { readonly op: "left"; readonly group: string }
  | { readonly op: "settled"; readonly tag: number }
  | { readonly op: "lost"; readonly tag: number }
  | {
      readonly op: "deliver";
      readonly group: string;
      readonly tag: number;
      readonly message: Message;
      readonly attempt: number;
      readonly orderKey: string | null;
    };

/** What a line says; undefined for one that a broken connection cut short. */
export function saidIn<T extends FromClient | ToClient>(line: string): T | undefined {
  try {
    return JSON.parse(line) as T;
  } catch {
    return undefined;
  }
}
