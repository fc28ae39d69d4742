// Choreography: flows of events that services publish and react to. A flow is declared as data; it can be checked for
// missing compensations and drawn. A watching consumer records the events of a flow, which shows the path of a
// correlation id through all services and finds paths that stopped.
export { checkFlow } from "./check-flow.ts";
export { flow, type FlowBody, type FlowStart } from "./define-flow.ts";
export { flowDiagram } from "./diagram.ts";
export type { FlowFinding, FlowFindingCode } from "./check-flow.ts";
export type { EventRole, Flow, Outcome, Reaction } from "./flow.ts";
export { buildPaths, readFlowPath, readRecordedEvents, type FlowPath } from "./flow-path.ts";
export { findUnfinished, Flows, type FlowsParts, type UnfinishedOptions } from "./flows.ts";
export { forgetFlowEvents, type ForgetFlowEventsOptions } from "./flows.ts";
export { judgePath } from "./judge-path.ts";
export type { PendingReaction, FlowStatus, Judgement, Surprise } from "./judge-path.ts";
export { findOpenPaths, type OpenPathsOptions } from "./flows.ts";
export { flowPathDiagram } from "./diagram.ts";
export type { FlowStep } from "./judge-path.ts";
export type { ReactionOptions } from "./define-flow.ts";
export type { RecordedEvent } from "./flow.ts";
export { watchFlow, type WatchOptions } from "./flows.ts";
