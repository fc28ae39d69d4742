import { SagaboxError } from "../../errors/index.ts";
import { isStoreId } from "../../message/index.ts";
import { flag, isLoopback, rejectUnknownKeys, text } from "../../options/index.ts";

/** A client of @aws-sdk/client-s3. Declared here, so that the optional package is not needed for its types. */
export interface S3ClientShape {
  readonly config: object;
  send: (...args: never[]) => unknown;
}

export interface S3StoreOptions {
  readonly bucket: string;
  /** A prefix of all keys, for a shared bucket: "payloads/". Default: none. */
  readonly prefix?: string;
  /** Default "s3". Every service that reads from the bucket must use the same id. */
  readonly id?: string;
  /** Your own client. The options below are then ignored. */
  readonly client?: S3ClientShape;
  /** Default: AWS_REGION, or the SDK's own default. */
  readonly region?: string;
  /** The URL of another S3-compatible server. Plain http is accepted only for this machine. */
  readonly endpoint?: string;
  /** Puts the bucket into the path instead of the host name. Default: true with an endpoint. */
  readonly forcePathStyle?: boolean;
  /** Default: the SDK's credential chain (environment, files, machine role). */
  readonly credentials?: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken?: string;
  };
}

export interface S3Settings {
  readonly id: string;
  readonly bucket: string;
  readonly prefix: string;
  readonly client: S3ClientShape | undefined;
  /** Passed to the constructor of the SDK's client. */
  readonly config: Readonly<Record<string, unknown>>;
}

const KNOWN = ["bucket", "prefix", "id", "client", "region", "endpoint", "forcePathStyle", "credentials"];
const PREFIX = /^(?:[A-Za-z0-9][A-Za-z0-9_.-]*\/)*$/;

export function readS3Settings(options: S3StoreOptions): S3Settings {
  rejectUnknownKeys("s3Store", options, KNOWN);
  const { endpoint, region, credentials, client } = options;
  const id = options.id ?? "s3";
  if (!isStoreId(id)) throw invalid("s3Store.id must have 1 to 63 lower case letters, digits or dashes.");
  if (endpoint !== undefined) assertSafe(endpoint);
  const pathStyle = flag("s3Store.forcePathStyle", options.forcePathStyle ?? endpoint !== undefined);
  return Object.freeze({
    id,
    bucket: text("s3Store.bucket", options.bucket, { min: 3, max: 63, pattern: /^[a-z0-9][a-z0-9.-]+$/ }),
    prefix: text("s3Store.prefix", options.prefix ?? "", { min: 0, max: 512, pattern: PREFIX }),
    client,
    config: {
      forcePathStyle: pathStyle,
      ...(region === undefined ? {} : { region }),
      ...(credentials === undefined ? {} : { credentials }),
      // Some servers store the newer checksum trailers as part of the object. The claim check verifies SHA-256 anyway.
      ...(endpoint === undefined
        ? {}
        : {
            endpoint,
            requestChecksumCalculation: "WHEN_REQUIRED",
            responseChecksumValidation: "WHEN_REQUIRED",
          }),
    },
  });
}

/** Throws OPTIONS_INVALID unless the endpoint is https or on this machine. */
export function assertSafe(endpoint: string): void {
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url?.protocol === "https:") return;
  if (url?.protocol === "http:" && isLoopback(url.hostname)) return;
  throw invalid("s3Store.endpoint must be an https:// URL; http:// is accepted for this machine only.");
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
