import type { KeyWrapper } from "sagabox/privacy";

// #region kms
/** How a key management service is plugged in: three calls, and the key of blind indexes beside it. */
export interface KeyService {
  encrypt(keyId: string, bytes: Uint8Array, context: Record<string, string>): Promise<Uint8Array>;
  /** Rejects when the service is away; undefined when the bytes are not what it encrypted. */
  decrypt(keyId: string, bytes: Uint8Array, context: Record<string, string>): Promise<Uint8Array | undefined>;
}

export function serviceKeys(service: KeyService, current: string): KeyWrapper {
  return {
    currentKeyId: () => current,
    wrap: async (dataKey, context) => ({
      keyId: current,
      wrapped: await service.encrypt(current, dataKey, { sagabox: context }),
    }),
    unwrap: ({ keyId, wrapped }, context) => service.decrypt(keyId, wrapped, { sagabox: context }),
  };
}
// #endregion kms
