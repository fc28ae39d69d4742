import { showSaga } from "../../admin/index.ts";
import { instanceDiagram, instanceTimeline, sagaDiagram, type SagaDefinition } from "../../saga/index.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { jsonText } from "../print.ts";
import { readId, numberValue, rejectOtherOptions, withSagas } from "./input.ts";
import { loadDefinitions } from "./check.ts";

const INSTANCE_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export async function diagram(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, ["app", "version"]);
  const name = readId(input, "id of an instance, or the name of a saga");
  const app = textValue(input, "app");
  const version = numberValue(input, "version");
  const definitions = app === undefined ? [] : await loadDefinitions(app, io);
  const definition = findDefinition(definitions, name, version);
  if (definition === undefined) refuseUnknown(name, { app, version, definitions });
  const drawn =
    definition === undefined ? await drawInstance(input, io, name, definitions) : sagaDiagram(definition);
  io.out(input.values["json"] === true ? jsonText({ mermaid: drawn }) : drawn);
  return 0;
}

/** Of several versions the newest. */
function findDefinition(
  definitions: readonly SagaDefinition[],
  name: string,
  version: number | undefined,
): SagaDefinition | undefined {
  return definitions
    .filter((one) => one.name === name && (version === undefined || one.version === version))
    .sort((a, b) => b.version - a.version)[0];
}

interface DefinitionQuery {
  readonly app: string | undefined;
  readonly version: number | undefined;
  readonly definitions: readonly SagaDefinition[];
}

/** What is neither a definition nor, by its looks, an instance is told without asking the database. */
function refuseUnknown(name: string, { app, version, definitions }: DefinitionQuery): void {
  if (INSTANCE_ID.test(name)) {
    if (version === undefined) return;
    throw new UsageError("--version is for the name of a saga; an instance is drawn in its own version.");
  }
  if (app === undefined) {
    throw new UsageError(
      `"${name}" is no id of an instance. To draw a saga by its name, say --app <module>, the file that registers it.`,
    );
  }
  const versions = versionsByName(definitions);
  const known = versions.get(name);
  if (known !== undefined) {
    throw new UsageError(`"${app}" registers no version ${version} of "${name}", only ${known.join(", ")}.`);
  }
  const list = [...versions].map(([one, numbers]) => `${one} (version ${numbers.join(", ")})`);
  throw new UsageError(
    `"${name}" is no id of an instance, and "${app}" registers no saga of this name. ` +
      (list.length === 0 ? "It registers none at all." : `It registers: ${list.join(", ")}.`),
  );
}

function versionsByName(definitions: readonly SagaDefinition[]): ReadonlyMap<string, readonly number[]> {
  const versions = new Map<string, number[]>();
  for (const { name, version } of definitions) {
    versions.set(
      name,
      [...(versions.get(name) ?? []), version].sort((a, b) => a - b),
    );
  }
  return versions;
}

function drawInstance(
  input: CommandInput,
  io: Io,
  id: string,
  definitions: readonly SagaDefinition[],
): Promise<string> {
  return withSagas(
    input,
    io,
    async (admin) => {
      const { type, definitionVersion, correlationId, status, state } = await showSaga(admin, id);
      const instance = { id, type, key: correlationId, status, state };
      const definition = admin.definitionOf(type, definitionVersion);
      return definition === undefined ? instanceTimeline(instance) : instanceDiagram(definition, instance);
    },
    definitions,
  );
}
