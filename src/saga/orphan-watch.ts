import { Loop } from "../runtime/index.ts";
import { toArrayLiteral, type Database } from "../storage/index.ts";
import type { SagaEngine } from "./engine.ts";

const EVERY_MS = 30_000;

interface OrphanRow {
  readonly type: string;
  readonly definition_version: number;
  readonly count: number;
}

/** Looks now and then for instances that wait for a version nobody here has, and says so. */
export function orphanWatch(engine: SagaEngine, database: Database, onError: (error: unknown) => void): Loop {
  const step = async (): Promise<number> => {
    const { rows } = await database.run<OrphanRow>(engine.sql.orphans, [
      toArrayLiteral(engine.listMovableSagas()),
    ]);
    for (const { type, definition_version: version, count } of rows) {
      engine.parts.observer.emit("saga.unknown_version", { type, version, count });
    }
    return EVERY_MS;
  };
  return new Loop({ step, onError });
}
