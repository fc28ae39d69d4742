import type { OwnedTransaction } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { ErasedSubject } from "./subject-erased.ts";

/** What erasing needs beside the keys. */
export interface Eraser {
  readonly engine: PrivacyEngine;
  /** Runs work in a transaction in which a message can be published. */
  readonly transaction: <T>(
    work: (tx: OwnedTransaction, publish: (told: ErasedSubject) => Promise<unknown>) => Promise<T>,
  ) => Promise<T>;
  /** Tells the other processes to forget the keys of the person. */
  readonly announce: (subject: string) => void;
}
