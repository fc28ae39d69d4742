import { Loop } from "../runtime/index.ts";
import { textArray, type Database } from "../storage/index.ts";
import type { SagaEngine } from "./engine.ts";

const EVERY_MS = 30_000;

interface Orphans {
  readonly type: string;
  readonly definition_version: number;
  readonly count: number;
}

/** Looks now and then for instances that wait for a version nobody here has, and says so. */
export function orphanWatch(engine: SagaEngine, database: Database, onError: (error: unknown) => void): Loop {
  const step = async (): Promise<number> => {
    const { rows } = await database.run<Orphans>(engine.sql.orphans, [textArray(engine.movable())]);
    for (const { type, definition_version: version, count } of rows) {
      engine.parts.observer.tell("saga.unknown_version", { type, version, count });
    }
    return EVERY_MS;
  };
  return new Loop({ step, onError });
}
