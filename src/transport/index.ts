// The contract between sagabox and a transport: publish a batch and return an outcome for each message, subscribe and
// settle each delivery. Authors of transports need nothing else.
export type {
  Beginning,
  Consumption,
  PublishOptions,
  PublishOutcome,
  Subscription,
  TopicRequest,
  Transport,
} from "./transport.ts";
export type { AckWith, DeadLetterNote, Delivery, RetryOptions } from "./delivery.ts";
export type { Capabilities } from "./capabilities.ts";
export type { BrokerObject, BrokerTopology, PlannedGroup } from "./topology.ts";
export { assertCanBegin, type StartingPoint } from "./starting-point.ts";
export { isLocalTransport, type HomeDatabase, type LocalHop, type LocalTransport } from "./local-hop.ts";
export {
  contentType,
  fromWire,
  toWire,
  toWireParts,
  toWireText,
  type ReceivedMessage,
  type WireForm,
  type WireMessage,
  type WireParts,
} from "./wire.ts";
export { cloudEventBindings, markUnreadable } from "./cloud-event-wire.ts";
export type { CloudEventBinding, MessageFormat } from "./cloud-event-wire.ts";
export { ClientLoader, type ClientPackage } from "./client-package.ts";
