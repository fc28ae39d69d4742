// The contract between sagabox and a transport: publish a batch and return an outcome for each message, subscribe and
// settle each delivery. Authors of transports need nothing else.
export {
  type AckWith,
  assertCanBegin,
  type Beginning,
  type BrokerObject,
  type BrokerTopology,
  type Capabilities,
  type Consumption,
  type DeadLetterNote,
  type Delivery,
  type GuestConsumption,
  type GuestTerms,
  type GuestView,
  type HomeDatabase,
  isLocalTransport,
  type LocalHop,
  type LocalTransport,
  type PlannedGroup,
  type PublishOptions,
  type PublishOutcome,
  type RetryOptions,
  type StartingPoint,
  type Subscription,
  type TopicRequest,
  type Transport,
} from "./transport.ts";
export { addParkedLags, combineMeasured, completeLags, type Lag, type Measured } from "./lag.ts";
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
export {
  kafkaRecords,
  rabbitmqRecords,
  sqsRecords,
  type KafkaItemIdentifier,
  type LambdaKafkaEvent,
  type LambdaRabbitmqEvent,
  type LambdaRecord,
  type LambdaSqsEvent,
} from "./lambda-records.ts";
export { ClientLoader, type ClientPackage } from "./client-package.ts";
