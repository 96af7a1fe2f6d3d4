"""`gensor_gym/Write-v0`: the environment in which a program is written choice by choice."""
