"""The custom resources: pydantic types, their validation rules and the CRDs generated from them."""
