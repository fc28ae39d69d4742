import { privacyEngine, privacySettings, sagaVault } from "../../privacy/index.ts";
import type { SagaVault } from "../../saga/index.ts";
import type { Database } from "../../storage/index.ts";

/** The key ring as an environment gives it: its text, or the file it is in. */
export interface GivenKeys {
  readonly text: string | undefined;
  readonly file: string | undefined;
}

/** Checks the keys at once. What it returns opens sagas about persons; without keys it returns nothing, and they stay sealed. */
export function sagaKeys(given: GivenKeys): (database: Database, schema: string) => SagaVault | undefined {
  const settings = privacySettings({}, given);
  return (database, schema) => {
    const engine = privacyEngine({ database, schema, settings });
    return engine === undefined ? undefined : sagaVault(engine);
  };
}
