import { errorText } from "../errors/index.ts";
import { withDeadline } from "../runtime/index.ts";
import { assertMigrated, assertWritable } from "../storage/index.ts";
import type { Parts } from "./parts.ts";

/** Less than a readiness probe waits, so that its answer still says which check failed. */
const PROBE_MS = 1_500;

/** Asks whether the database can be worked with, one question at a time: a database that hangs gets no more of them. */
export class DatabaseProbe {
  readonly #parts: Pick<Parts, "leased" | "settings">;
  #checking: Promise<string | undefined> | undefined;

  constructor(parts: Pick<Parts, "leased" | "settings">) {
    this.#parts = parts;
  }

  /** Why it cannot be worked with now; undefined when it can. */
  findProblem(): Promise<string | undefined> {
    this.#checking ??= this.#check().finally(() => (this.#checking = undefined));
    return withDeadline(this.#checking, PROBE_MS, () => `The database did not answer within ${PROBE_MS} ms.`);
  }

  async #check(): Promise<string | undefined> {
    const { leased, settings } = this.#parts;
    try {
      await assertWritable(leased);
      await assertMigrated(leased, settings.schema);
      return undefined;
    } catch (error) {
      return errorText(error);
    }
  }
}
