import { listAudit, type AuditFilter, type AuditLine } from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { dropUndefined, numberValue } from "../saga/input.ts";
import { withSchema } from "../settings.ts";
import { timeValue } from "../time-value.ts";
import { rejectOtherOptions } from "./reject-other-options.ts";

const LIST_OPTIONS = "all log saga actor action target trace outcome since until limit after".split(" ");

/** Who asks for one of these wants to see all there is of it. */
const NARROWING_OPTIONS = ["all", "log", "saga", "action", "target", "trace"];

export async function list(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, LIST_OPTIONS);
  // The function behind checks these values, and says which are allowed.
  const people = NARROWING_OPTIONS.every((name) => input.values[name] === undefined);
  const filter = dropUndefined({
    people,
    log: textValue(input, "log"),
    sagaId: textValue(input, "saga"),
    actor: textValue(input, "actor"),
    action: textValue(input, "action"),
    target: targetValue(input),
    traceId: textValue(input, "trace"),
    outcome: textValue(input, "outcome"),
    from: timeValue(input, "since"),
    to: timeValue(input, "until"),
    limit: numberValue(input, "limit"),
    after: textValue(input, "after"),
  }) as AuditFilter;
  const lines = await withSchema(input, io, "operator", (database, schema) =>
    listAudit(database, schema, filter),
  );
  if (input.values["json"] === true) {
    io.out(jsonText({ lines }));
    return 0;
  }
  if (lines.length === 0) {
    io.out(`There are no such lines in the audit log.${people ? ` ${LEFT_OUT_NOTE}` : ""}`);
    return 0;
  }
  io.out(table(["at", "who", "what", "target", "outcome", "change", "why"], lines.map(toRow)));
  const last = lines.at(-1);
  if (last !== undefined && lines.length === (filter.limit ?? 50)) {
    io.out(safeLines(`More: add --after ${last.cursor}`));
  }
  if (people) io.out(LEFT_OUT_NOTE);
  return 0;
}

const LEFT_OUT_NOTE = "What sagas did by themselves is left out; --all shows it.";

function toRow(line: AuditLine): readonly (string | null)[] {
  const { saga } = line;
  const target = `${line.target.kind}${line.target.id === null ? "" : ` ${line.target.id}`}`;
  return [
    line.at,
    line.actor ?? saga?.cause ?? null,
    saga?.step === undefined || saga.step === null ? line.action : `${line.action} ${saga.step}`,
    target,
    line.errorCode === null ? line.outcome : `${line.outcome} (${line.errorCode})`,
    saga === null ? shorten(outcomeText(line.after)) : changeText(saga),
    shorten(line.reason ?? saga?.note ?? null),
  ];
}

function changeText({ from, to }: NonNullable<AuditLine["saga"]>): string | null {
  return from === null && to === null ? null : `${from ?? ""} → ${to ?? ""}`;
}

/** What came of it, where that was written down in words: the rest of it is in the JSON. */
function outcomeText(after: AuditLine["after"]): string | null {
  if (after === null || typeof after !== "object" || !("why" in after)) return null;
  return typeof after["why"] === "string" ? after["why"] : null;
}

function targetValue(input: CommandInput): { kind: string; id?: string } | undefined {
  const [kind = "", ...rest] = textValue(input, "target")?.split(":") ?? [];
  if (kind === "") return undefined;
  return rest.length === 0 ? { kind } : { kind, id: rest.join(":") };
}

function shorten(text: string | null): string | null {
  return text === null || text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}
