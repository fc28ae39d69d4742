import { checkSagas, type CheckFinding } from "../../admin/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import type { DefinitionComparison, SagaDefinition } from "../../saga/index.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { DONE, FOUND } from "../exit-codes.ts";
import { loadApp } from "../load-app.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { dropUndefined, rejectArguments, numberValue, rejectOtherOptions, withSagas } from "./input.ts";

export async function check(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, ["app", "type", "ended"]);
  rejectArguments(input);
  const app = textValue(input, "app");
  if (app === undefined) throw new UsageError('"sagabox saga check" needs --app <module>.');
  const options = dropUndefined({ type: textValue(input, "type"), ended: numberValue(input, "ended") });
  const definitions = await loadDefinitions(app, io);
  const report = await withSagas(input, io, (admin) => checkSagas(admin, options), definitions);
  if (input.values["json"] === true) io.out(jsonText(report));
  else {
    const { checked, same, diverges, stuck, skipped, strangers, definitions, findings } = report;
    for (const line of definitions.flatMap(comparisonLines)) io.out(safeLines(line));
    if (findings.length > 0) io.out(findingTable(findings));
    io.out(`${checked} checked: ${same} same, ${diverges} diverge, ${stuck} stuck.`);
    if (skipped > 0) io.out(`${skipped} skipped: they have ended, and their version is not registered.`);
    for (const { type, open } of strangers) {
      io.out(
        safeLines(`Not checked: ${open} open of saga "${type}", which "${app}" does not register at all.`),
      );
    }
  }
  const isRefused = report.definitions.some(({ unfitSteps }) => unfitSteps.length > 0);
  return report.diverges + report.stuck === 0 && !isRefused ? DONE : FOUND;
}

/** What changed from the stored definition to that of the application; nothing where they are the same. */
function comparisonLines(comparison: DefinitionComparison): readonly string[] {
  const { type, version, verdict, differences, unfitSteps, unfitInstances } = comparison;
  const changed =
    verdict === "changed" ? [`Saga "${type}" version ${version} differs from the stored definition:`] : [];
  const refused =
    unfitSteps.length === 0
      ? []
      : [
          `A worker refuses to start with saga "${type}" version ${version}: ${unfitInstances} unfinished instances have begun`,
          ...unfitSteps.map(
            ({ step, why, instances }) => `  "${step}", which ${why} (instances: ${instances})`,
          ),
        ];
  return [...changed, ...differences.map((difference) => `  ${difference}`), ...refused];
}

function findingTable(findings: readonly CheckFinding[]): string {
  return table(
    ["id", "type", "version", "key", "status", "verdict", "from nr", "step", "why"],
    findings.map((one) => [
      one.id,
      one.type,
      one.definitionVersion,
      one.correlationId,
      one.status,
      one.verdict,
      one.version,
      one.step,
      one.why,
    ]),
  );
}

/** The sagas that the application registers with its bus. The bus is not run. */
export async function loadDefinitions(app: string, io: Io): Promise<readonly SagaDefinition[]> {
  const bus = await loadApp(app, io.cwd);
  try {
    const { sagas } = bus as { sagas?: { definitions?: () => readonly SagaDefinition[] } };
    if (typeof sagas?.definitions === "function") return sagas.definitions();
    throw new SagaboxError("APP_MODULE_INVALID", `"${app}" exports a bus that knows nothing of sagas.`);
  } finally {
    await bus.stop();
  }
}
