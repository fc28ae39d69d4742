import { createPrivacyEngine, readPrivacySettings, createSagaVault } from "../../privacy/index.ts";
import type { SagaVault } from "../../saga/index.ts";
import type { Database } from "../../storage/index.ts";

/** The key ring as an environment gives it: its text, or the file it is in. */
export interface KeyRingSource {
  readonly text: string | undefined;
  readonly file: string | undefined;
}

/** Checks the keys at once. What it returns opens sagas about persons; without keys it returns nothing, and they stay sealed. */
export function readSagaKeys(
  given: KeyRingSource,
): (database: Database, schema: string) => SagaVault | undefined {
  const settings = readPrivacySettings({}, given);
  return (database, schema) => {
    const engine = createPrivacyEngine({ database, schema, settings });
    return engine === undefined ? undefined : createSagaVault(engine);
  };
}
