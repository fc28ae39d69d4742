import type { Queryable } from "../storage/index.ts";
import type { InFlight } from "./in-flight.ts";
import type { RawRow } from "./lane-row.ts";
import type { Marks } from "./marks.ts";
import type { LaneOwnership } from "./ownership.ts";
import { readOf, type Read } from "./read.ts";
import type { ReadStatements } from "./statements.ts";

interface AskingParts {
  readonly ownership: LaneOwnership;
  readonly marks: Marks;
  readonly inFlight: InFlight;
}

/** Asks the server about lanes, and knows which of them are still ours when it answers. */
export class Asking {
  readonly #parts: AskingParts;
  #lastSession: Queryable | undefined;

  constructor(parts: AskingParts) {
    this.#parts = parts;
  }

  async read(
    session: Queryable,
    statement: ReadStatements["fetch"],
    lanes: readonly number[],
    params: readonly (string | number)[],
  ): Promise<Read> {
    const { ownership, marks, inFlight } = this.#parts;
    const claims = new Map(lanes.map((lane) => [lane, ownership.claim(lane)]));
    // A new connection may lead to a server that crashed in between and lost what was not durable yet.
    if (session !== this.#lastSession) marks.forgetAll();
    this.#lastSession = session;
    inFlight.beginRead();
    const { rows } = await session.run<RawRow>(statement, params).catch((error: unknown) => {
      marks.forgetAll();
      throw error;
    });
    marks.finishRead();
    const still = new Set(
      lanes.filter((lane) => {
        const claim = ownership.claim(lane);
        return claim !== undefined && claim === claims.get(lane);
      }),
    );
    return readOf(rows, (lane) => still.has(lane));
  }
}
