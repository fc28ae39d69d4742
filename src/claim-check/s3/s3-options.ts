import { SagaboxError } from "../../errors/index.ts";
import { isStoreId } from "../../message/index.ts";
import { isLoopback, option, readOptions, type OptionsFrom } from "../../options/index.ts";

/** A client of @aws-sdk/client-s3. Declared here, so that the optional package is not needed for its types. */
export interface S3ClientShape {
  readonly config: object;
  send: (...args: never[]) => unknown;
}

const PREFIX = /^(?:[A-Za-z0-9][A-Za-z0-9_.-]*\/)*$/;

interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export const s3StoreOptions = {
  /** The bucket of the objects. */
  bucket: option.string({ required: true, min: 3, max: 63, pattern: /^[a-z0-9][a-z0-9.-]+$/ }),
  /** A prefix of all keys, for a shared bucket: "payloads/". Default: none. */
  prefix: option.string({ default: "", min: 0, max: 512, pattern: PREFIX }),
  /** Default "s3". Every service that reads from the bucket must use the same id. */
  id: option.value<string>({ accepts: "string", default: "s3", check: checkId }),
  /** Your own client. The options below are then ignored. */
  client: option.value<S3ClientShape>({ accepts: "S3ClientShape" }),
  /** The region of the bucket. Default: AWS_REGION, or the SDK's own default. */
  region: option.value<string>({ accepts: "string" }),
  /** The URL of another S3-compatible server. Plain http is accepted only for this machine. */
  endpoint: option.value<string>({
    accepts: "string",
    check: (_, endpoint) => assertSafe(endpoint as string),
  }),
  /** Puts the bucket into the path instead of the host name. Default: true with an endpoint. */
  forcePathStyle: option.boolean({}),
  /** Default: the SDK's credential chain (environment, files, machine role). */
  credentials: option.value<S3Credentials>({ accepts: "an object" }),
};

export interface S3StoreOptions extends OptionsFrom<typeof s3StoreOptions> {}

export interface S3Settings {
  readonly id: string;
  readonly bucket: string;
  readonly prefix: string;
  readonly client: S3ClientShape | undefined;
  /** Passed to the constructor of the SDK's client. */
  readonly config: Readonly<Record<string, unknown>>;
}

export function readS3Settings(options: S3StoreOptions): S3Settings {
  const { id, bucket, prefix, client, endpoint, region, credentials, forcePathStyle } = readOptions(
    "s3Store",
    s3StoreOptions,
    options,
  );
  return Object.freeze({
    id,
    bucket,
    prefix,
    client,
    config: {
      forcePathStyle: forcePathStyle ?? endpoint !== undefined,
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

function checkId(_: string, id: unknown): string {
  if (isStoreId(id)) return id;
  throw invalid("s3Store.id must have 1 to 63 lower case letters, digits or dashes.");
}

/** Returns the endpoint. Throws OPTIONS_INVALID unless it is https or on this machine. */
export function assertSafe(endpoint: string): string {
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url?.protocol === "https:") return endpoint;
  if (url?.protocol === "http:" && isLoopback(url.hostname)) return endpoint;
  throw invalid("s3Store.endpoint must be an https:// URL; http:// is accepted for this machine only.");
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
