import { SagaboxError } from "../errors/index.ts";
import { listSteps, type Node, type SagaDefinition, type Work } from "./definition.ts";

const NAME = /^[A-Za-z][A-Za-z0-9_-]{0,99}$/;
const MAX_STEPS = 500;

/**
 * What the compiler cannot see, or a caller without one did not. Throws at the first mistake. That every step can be
 * reached needs no look at the whole: no word of a definition ends a saga or leaps over steps, so whatever stands behind
 * a block is come to once that block is done. Only blocks could keep something from ever being done, and those in which
 * there is nothing to do are refused.
 */
export function checkDefinition({ name, nodes, personal }: SagaDefinition): void {
  if (!NAME.test(name)) throw definitionError(`saga "${name}"`, "its name", NAME_RULE);
  const names = new Set<string>();
  checkNames(name, nodes, names);
  const steps = listSteps(nodes);
  if (steps.length > MAX_STEPS)
    throw definitionError(`saga "${name}"`, "it", `has more than ${MAX_STEPS} steps`);
  for (const { path, step } of steps) {
    const where = `saga "${name}", step "${path}"`;
    const { work, undo } = step;
    if (
      work.kind === "child" &&
      undo?.kind === "child" &&
      listSteps(work.saga.nodes).some((one) => one.step.pivot)
    ) {
      throw definitionError(
        where,
        "its child saga",
        "has a pivot and cannot be undone: say noUndo(reason) or pivot()",
      );
    }
    const brought = findPersonalSource(work);
    if (personal === null && brought !== undefined) {
      throw definitionError(
        where,
        `"${brought}"`,
        "brings personal data into the saga: say whose, in its `personal`",
      );
    }
    if (work.kind === "wait" && work.by === null && work.event.key === undefined) {
      throw definitionError(where, `the event "${work.event.name}"`, "has no key: say `by`");
    }
  }
}

/** The contract with which personal data would get into the state. */
function findPersonalSource(work: Work): string | undefined {
  if (work.kind === "wait") return work.event.personal === null ? undefined : work.event.name;
  if (work.kind === "send") return work.command.personal === null ? undefined : work.command.name;
  return work.kind === "child" && work.saga.personal !== null ? work.saga.name : undefined;
}

const NAME_RULE = "must be 1 to 100 letters, digits, - or _, beginning with a letter";

function checkNames(saga: string, nodes: readonly Node[], names: Set<string>): void {
  for (const node of nodes) {
    const where = `saga "${saga}", step "${node.name}"`;
    if (!NAME.test(node.name)) throw definitionError(where, "its name", NAME_RULE);
    if (names.has(node.name))
      throw definitionError(where, "its name", "is taken by another one: names are unique");
    names.add(node.name);
    if (node.kind === "group") {
      if (node.members.length === 0) throw definitionError(where, "the group", "is empty");
      checkNames(`${saga}", group "${node.name}`, node.members, new Set());
    } else if (node.kind === "branch") {
      if (Object.keys(node.ways).length === 0) throw definitionError(where, "the choice", "has no way");
      for (const [name, way] of Object.entries(node.ways)) {
        if (way.length === 0)
          throw definitionError(
            where,
            `the way "${name}"`,
            "is empty: leave it out, and choose null for nothing to do",
          );
        checkNames(saga, way, names);
      }
    } else if (node.kind === "repeat") {
      if (node.body.length === 0) throw definitionError(where, "the repetition", "is empty");
      checkNames(saga, node.body, names);
    }
  }
}

function definitionError(where: string, what: string, rule: string): SagaboxError {
  return new SagaboxError("SAGA_INVALID", `${where}: ${what} ${rule}.`);
}
