const levels = {
  "missing-compensation": "error",
  loop: "error",
  unreachable: "error",
  "dead-end": "error",
  "end-goes-on": "error",
  "undo-of-nothing": "error",
  "undone-twice": "error",
  "undo-in-a-race": "warning",
  "made-twice": "warning",
  "not-all-checked": "warning",
} as const;

export type FlowFindingCode = keyof typeof levels;

export interface FlowFinding {
  readonly code: FlowFindingCode;
  /** A warning may be acceptable when the services handle the case. */
  readonly level: "error" | "warning";
  /** The event that the finding is about. */
  readonly event: string;
  /** The events of the scenario in which the problem occurs. */
  readonly where: readonly string[];
  readonly what: string;
  readonly remedy: string;
}

export function finding(one: Omit<FlowFinding, "level">): FlowFinding {
  return Object.freeze({ ...one, level: levels[one.code] });
}
